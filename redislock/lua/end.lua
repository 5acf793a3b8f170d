end)()
S.commit()
return answer
